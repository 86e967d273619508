// HTTP/1.1 for answers that are told while they are made. There is no TLS: a proxy in front of it has that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bie::cli::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Limits {
  std::size_t header_bytes = 16 << 10, body_bytes = 8 << 20;
  std::size_t unread_bytes = 64 << 20;  ///< of a stream that its reader has not taken: it is closed
  std::int64_t connections = 16384;
  int idle_seconds = 75;      ///< until the end of the next request's header
  int body_seconds = 60;      ///< until the end of its body
  int progress_seconds = 30;  ///< in which a reader takes some of what is written
};

struct Request {
  std::string method, path, body, authorization, api_key, content_type, origin, address;
};

/// The way back to a client. The server's thread makes all calls.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// These headers are part of whatever is answered.
  virtual void add_headers(const Headers& headers) = 0;
  /// The whole answer.
  virtual void answer(int status, std::string_view type, const std::string& body, const Headers& headers = {}) = 0;
  /// An answer in parts: begin, write as often as wanted, end.
  virtual void begin(std::string_view type, const Headers& headers = {}) = 0;
  virtual void write(const std::string& bytes) = 0;
  virtual void end() = 0;
  /// Called once if the client leaves before the end, from the server's loop.
  virtual void on_gone(std::function<void()> call) = 0;
};

/// The body of the answer to what is no request, JSON. The path is empty where it is not known.
using Refusal = std::function<std::string(const std::string& path, int status, const std::string& sentence)>;
using Handler = std::function<void(Request request, std::shared_ptr<Exchange> exchange)>;

class Server {
 public:
  Server(const Limits& limits, Handler handler, Refusal refusal);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// @throws std::runtime_error: the name is no address, or the port is taken.
  void listen(const std::string& host, int port);
  int port() const;
  /// Serves until the exchanges that are under way when drain() is called have ended.
  void run();
  /// Takes no more connections, lets those that wait go, and ends run() once nothing is under way or the time is over.
  void drain(int seconds);
  /// Calls `call` in the server's loop, from any thread.
  void post(std::function<void()> call);
  /// Calls `call` in the server's loop after so many seconds, unless the result is gone by then.
  [[nodiscard]] std::shared_ptr<void> after(int seconds, std::function<void()> call);
  /// Calls `call` at each SIGINT and SIGTERM.
  void on_signal(std::function<void(int signal)> call);
  std::int64_t connections() const;

 private:
  struct Impl;
  class Connection;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bie::cli::http
