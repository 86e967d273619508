#include "cli/net_main/serve/http.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <csignal>
#include <ctime>
#include <deque>
#include <optional>
#include <stdexcept>
#include <unordered_set>

#include "bie/formats/error.h"
#include "cli/support/log.h"
#include "cli/support/text.h"

namespace bie::cli::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using tcp = asio::ip::tcp;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::gmtime_r(&now, &time);
  constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return format("%s, %02d %s %d %02d:%02d:%02d GMT", days[time.tm_wday], time.tm_mday, months[time.tm_mon],
                1900 + time.tm_year, time.tm_hour, time.tm_min, time.tm_sec);
}

std::string lines_of(const Headers& headers) {
  std::string lines;
  for (const auto& [name, value] : headers) lines += name + ": " + value + "\r\n";
  return lines;
}

std::string head_of(int status, std::string_view type, const Headers& headers) {
  return formats::joined("HTTP/1.1 ", status, " ",
                         std::string(beast::http::obsolete_reason(static_cast<beast::http::status>(status))),
                         "\r\nDate: ", date_now(), "\r\nContent-Type: ", type,
                         "\r\nX-Content-Type-Options: nosniff\r\n", lines_of(headers));
}

std::string chunk_of(const std::string& bytes) { return format("%zx\r\n", bytes.size()) + bytes + "\r\n"; }

}  // namespace

struct Server::Impl {
  Impl(const Limits& bounds, Handler handles, Refusal refuses)
      : limits(bounds),
        handler(std::move(handles)),
        refusal(std::move(refuses)),
        acceptor(io),
        signals(io),
        deadline(io),
        pause(io) {}

  void accept();
  void connect(tcp::socket socket);
  /// Ends run() where it drains and nothing is under way.
  void settle();

  Limits limits;
  Handler handler;
  Refusal refusal;
  std::unordered_set<Connection*> connections;  ///< above io: they live in its calls
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer deadline, pause;
  std::function<void(int)> signalled;
  std::int64_t under_way = 0;
  bool drains = false;
};

/// The path of a target, which may be a whole address (RFC 9112, section 3.2.2).
std::string path_of(beast::string_view target) {
  target = target.substr(0, target.find('?'));
  const auto scheme = target.find("://");
  if (scheme == beast::string_view::npos || target.front() == '/') return std::string(target);
  const auto path = target.find('/', scheme + 3);
  return path == beast::string_view::npos ? "/" : std::string(target.substr(path));
}

/// One client: reads a request, has it answered, and reads the next.
class Server::Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Impl& server) : stream_(std::move(socket)), server_(server) {
    server_.connections.insert(this);
    error_code ignored;
    const auto end = stream_.socket().remote_endpoint(ignored);
    address_ = end.address().to_string(ignored);
    stream_.socket().set_option(tcp::no_delay(true), ignored);
  }
  ~Connection() override { server_.connections.erase(this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void read() {
    if (server_.drains) return close();
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.limits.header_bytes));
    parser_->body_limit(server_.limits.body_bytes);
    stream_.expires_after(std::chrono::seconds(server_.limits.idle_seconds));
    beast::http::async_read_header(stream_, buffer_, *parser_,
                                   [self = shared_from_this()](const error_code& error, std::size_t) {
                                     error ? self->refuse(error) : self->take_header();
                                   });
  }

  /// Leaves unless a request is under way.
  void close_if_idle() {
    if (!is_under_way_) close();
  }

  void add_headers(const Headers& headers) override { headers_.insert(headers_.end(), headers.begin(), headers.end()); }
  /// Lets go of those who answer, who hold this.
  void forget() { gone_ = nullptr; }
  void answer(int status, std::string_view type, const std::string& body, const Headers& headers) override {
    if (is_gone_) return;
    const bool has_body = !is_head_;
    const std::string length = status == 204 ? "" : formats::joined("Content-Length: ", body.size(), "\r\n");
    put(head_of(status, type, headers) + connection_header() + length + "\r\n" + (has_body ? body : ""));
    has_ended_ = true;
  }
  void begin(std::string_view type, const Headers& headers) override {
    if (is_old_) keeps_ = false;
    put(head_of(200, type, headers) + connection_header() + (is_old_ ? "" : "Transfer-Encoding: chunked\r\n") + "\r\n");
  }
  void write(const std::string& bytes) override {
    if (waiting_ > server_.limits.unread_bytes) return close();
    if (!bytes.empty()) put(is_old_ ? bytes : chunk_of(bytes));
  }
  void end() override {
    if (!is_old_) put("0\r\n\r\n");
    has_ended_ = true;
    if (out_.empty()) finish();
  }
  void on_gone(std::function<void()> call) override {
    if (is_gone_)
      asio::post(server_.io, std::move(call));
    else
      gone_ = std::move(call);
  }

 private:
  static constexpr std::size_t unread_most = 32 << 10;

  std::string connection_header() const {
    const bool keeps = keeps_ && !server_.drains;
    return lines_of(headers_) + (!keeps ? "Connection: close\r\n" : is_old_ ? "Connection: keep-alive\r\n" : "");
  }

  /// A coding other than chunked alone makes the end of the body a matter of opinion (RFC 9112, section 6.3).
  bool has_clear_end() const {
    const auto& header = parser_->get();
    const auto codings = header.count(beast::http::field::transfer_encoding);
    return codings == 0 || (codings == 1 && header.version() == 11 &&
                            beast::iequals(header[beast::http::field::transfer_encoding], "chunked"));
  }

  /// Keeps the fields of the header before the body comes, behind which others may stand that are none of it.
  void take_header() {
    const auto& header = parser_->get();
    const auto hosts = header.count(beast::http::field::host);
    if (header.version() == 11 && hosts != 1) return refuse(400, formats::joined("expected one Host, got ", hosts));
    if (!has_clear_end())
      return refuse(400, "expected no Transfer-Encoding but one of chunked, got " +
                             formats::in_quotes(std::string(header[beast::http::field::transfer_encoding])));
    const auto field = [&](beast::string_view name) { return std::string(header[name]); };
    request_ = {std::string(header.method_string()),
                path_of(header.target()),
                "",
                field("Authorization"),
                field("X-Api-Key"),
                field("Content-Type"),
                field("Origin"),
                address_};
    const bool waits = header.version() == 11 && beast::iequals(header[beast::http::field::expect], "100-continue");
    waits ? write_continue() : read_body();
  }

  void read_body() {
    stream_.expires_after(std::chrono::seconds(server_.limits.body_seconds));
    beast::http::async_read(stream_, buffer_, *parser_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              error ? self->refuse(error) : self->handle();
                            });
  }

  void write_continue() {
    static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(go_on), [self = shared_from_this()](const error_code& error, std::size_t) {
      error ? self->close() : self->read_body();
    });
  }

  /// A request that is none: the client is told, where it can be, and leaves.
  void refuse(const error_code& why) {
    namespace of = beast::http;
    const bool is_speaking = why.category() == of::make_error_code(of::error::bad_method).category() &&
                             why != of::error::end_of_stream && why != of::error::partial_message;
    if (!is_speaking) return close();
    if (why == of::error::body_limit)
      return refuse(413, formats::joined("expected a body of at most ", server_.limits.body_bytes, " bytes, got more"));
    if (why == of::error::header_limit || why == of::error::buffer_overflow)
      return refuse(431,
                    formats::joined("expected a header of at most ", server_.limits.header_bytes, " bytes, got more"));
    refuse(400, "expected a request of HTTP/1.1, got other bytes: " + why.message());
  }

  void refuse(int status, const std::string& sentence) {
    begin_exchange();
    keeps_ = is_head_ = false;
    lingers_ = true;
    answer(status, "application/json", server_.refusal(path_of(parser_->get().target()), status, sentence), {});
  }

  /// Lets a client that still sends read what it was told: a socket that is closed with bytes in it resets.
  void linger() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(2));
    discard();
  }
  void discard() {
    buffer_.clear();
    stream_.async_read_some(
        buffer_.prepare(unread_most),
        [self = shared_from_this()](const error_code& error, std::size_t) { error ? self->close() : self->discard(); });
  }

  void begin_exchange() {
    is_under_way_ = true;
    ++server_.under_way;
    has_ended_ = false;
    headers_.clear();
  }

  void handle() {
    auto message = parser_->release();
    parser_.reset();
    begin_exchange();
    keeps_ = message.keep_alive();
    is_old_ = message.version() < 11;
    is_head_ = message.method() == beast::http::verb::head;
    request_.body = std::move(message.body());
    stream_.expires_never();
    watch();
    server_.handler(std::move(request_), shared_from_this());
  }

  /// Sees a client leave. What it sends meanwhile is the beginning of its next request; much of it has to wait.
  void watch() {
    if (buffer_.size() + 4096 > unread_most) return;
    watches_ = true;
    stream_.socket().async_read_some(buffer_.prepare(4096),
                                     [self = shared_from_this()](const error_code& error, std::size_t count) {
                                       self->watches_ = false;
                                       self->buffer_.commit(count);
                                       if (self->is_gone_) return;
                                       if (error && error != asio::error::operation_aborted) return self->close();
                                       if (!std::exchange(self->wants_next_, false)) return self->watch();
                                       self->read();
                                     });
  }

  void put(std::string bytes) {
    if (is_gone_) return;
    waiting_ += bytes.size();
    out_.push_back(std::move(bytes));
    if (out_.size() == 1) write_next();
  }

  void write_next() {
    stream_.expires_after(std::chrono::seconds(server_.limits.progress_seconds));
    stream_.async_write_some(asio::buffer(out_.front()) + written_,
                             [self = shared_from_this()](const error_code& error, std::size_t count) {
                               if (self->is_gone_) return;
                               if (error) return self->close();
                               self->waiting_ -= count;
                               self->written_ += count;
                               if (self->written_ < self->out_.front().size()) return self->write_next();
                               self->written_ = 0;
                               self->out_.pop_front();
                               if (!self->out_.empty()) return self->write_next();
                               self->stream_.expires_never();
                               if (self->has_ended_) self->finish();
                             });
  }

  void end_exchange() {
    if (!is_under_way_) return;
    is_under_way_ = false;
    --server_.under_way;
    server_.settle();
  }

  void finish() {
    if (is_gone_ || !is_under_way_) return;
    gone_ = nullptr;
    end_exchange();
    if (lingers_) return linger();
    if (!keeps_) return close();
    if (!watches_) return read();
    wants_next_ = true;
    error_code ignored;
    stream_.socket().cancel(ignored);
  }

  void close() {
    if (is_gone_) return;
    is_gone_ = true;
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.close();
    end_exchange();
    if (gone_) asio::post(server_.io, std::exchange(gone_, nullptr));
  }

  beast::tcp_stream stream_;
  Impl& server_;
  std::string address_;
  beast::flat_buffer buffer_{unread_most};  ///< bounds the chunk extensions and trailers that the parser waits for
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  std::size_t waiting_ = 0;      ///< bytes of out_ that are not written
  std::size_t written_ = 0;      ///< bytes of its first one
  std::deque<std::string> out_;  ///< the first one is being written
  Request request_;              ///< that is being read
  Headers headers_;              ///< of whatever is answered
  std::function<void()> gone_;
  bool keeps_ = true, is_old_ = false, is_head_ = false;
  bool is_under_way_ = false, has_ended_ = false, is_gone_ = false, watches_ = false, wants_next_ = false;
  bool lingers_ = false;
};

/// The last holder of a connection may be another thread, which answers: it ends in the server's loop all the same.
void Server::Impl::connect(tcp::socket socket) {
  const std::shared_ptr<Connection> made(new Connection(std::move(socket), *this), [this](Connection* connection) {
    asio::post(io, [ends = std::unique_ptr<Connection>(connection)] {});
  });
  made->read();
}

void Server::Impl::accept() {
  acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (error) {  // as where the process has no descriptors left
      pause.expires_after(std::chrono::milliseconds(100));
      pause.async_wait([this](const error_code&) { accept(); });
      return;
    }
    if (static_cast<std::int64_t>(connections.size()) < limits.connections) connect(std::move(socket));
    accept();
  });
}

void Server::Impl::settle() {
  if (drains && under_way == 0) io.stop();
}

Server::Server(const Limits& limits, Handler handler, Refusal refusal)
    : impl_(std::make_unique<Impl>(limits, std::move(handler), std::move(refusal))) {}
Server::~Server() {
  for (Connection* connection : impl_->connections) connection->forget();
}

void Server::listen(const std::string& host, int port) {
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error)
    throw std::runtime_error("--host: expected an address, as 127.0.0.1 or ::, got " + formats::in_quotes(host));
  try {
    const tcp::endpoint end(address, static_cast<std::uint16_t>(port));
    impl_->acceptor.open(end.protocol());
    impl_->acceptor.set_option(tcp::acceptor::reuse_address(true));
    impl_->acceptor.bind(end);
    impl_->acceptor.listen(4096);
  } catch (const boost::system::system_error& refused) {
    throw std::runtime_error(
        formats::joined("address ", host, ", port ", port, " cannot be listened at: ", refused.code().message()));
  }
  impl_->accept();
}

int Server::port() const { return impl_->acceptor.local_endpoint().port(); }
/// A call that throws ends its connection, not the server.
void Server::run() {
  for (;;) try {
      impl_->io.run();
      return;
    } catch (const std::exception& error) {
      log::warn(formats::joined("a connection is closed: ", error.what()));
    }
}
void Server::post(std::function<void()> call) { asio::post(impl_->io, std::move(call)); }
std::int64_t Server::connections() const { return static_cast<std::int64_t>(impl_->connections.size()); }

std::shared_ptr<void> Server::after(int seconds, std::function<void()> call) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->io, std::chrono::seconds(seconds));
  timer->async_wait([call = std::move(call)](const error_code& error) {
    if (!error) call();
  });
  return timer;
}

void Server::drain(int seconds) {
  Impl& server = *impl_;
  server.drains = true;
  error_code ignored;
  server.acceptor.close(ignored);
  const std::vector<Connection*> all(server.connections.begin(), server.connections.end());
  for (Connection* connection : all) connection->close_if_idle();
  server.deadline.expires_after(std::chrono::seconds(seconds));
  server.deadline.async_wait([&server](const error_code& error) {
    if (!error) server.io.stop();
  });
  server.settle();
}

void Server::on_signal(std::function<void(int)> call) {
  Impl& server = *impl_;
  if (!server.signalled)
    for (const int signal : {SIGINT, SIGTERM}) server.signals.add(signal);
  server.signalled = std::move(call);
  struct Wait {
    static void next(Impl& of) {
      of.signals.async_wait([&of](const error_code& error, int signal) {
        if (error) return;
        of.signalled(signal);
        next(of);
      });
    }
  };
  Wait::next(server);
}

}  // namespace bie::cli::http
