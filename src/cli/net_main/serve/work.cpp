#include "cli/net_main/serve/work.h"

#include <new>
#include <random>
#include <utility>

#include "bie/formats/error.h"
#include "cli/support/text.h"

namespace bie::cli {

using Clock = std::chrono::steady_clock;

std::string random_id(const char* kind) {
  std::random_device device;
  std::string id = kind;
  for (int i = 0; i < 4; ++i) id += format("%08x", device());
  return id;
}

Work::Work(Service& service, const ServedModel& model, std::string id, Origin origin)
    : service_(service),
      model_(model),
      id_(std::move(id)),
      origin_(std::move(origin)),
      begin_(Clock::now()),
      ids_(std::make_shared<std::vector<llm::Scheduler::Id>>()) {}

double Work::seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

void Work::start() {
  const auto self = shared_from_this();
  origin_.exchange->on_gone([self] {
    if (std::exchange(self->is_over_, true)) return;
    self->patience_ = nullptr;
    self->stop_work();
    self->origin_.ended({self->id_, self->model_.name, 499, {}, self->seconds(), "the client left", ""});
  });
  std::vector<llm::Request> all = requests();
  for (llm::Request& request : all) request.client = origin_.client;
  service_.engine->post(model_.scheduler, [self, all = std::move(all)](llm::Scheduler& scheduler) mutable {
    http::Server& server = self->service_.server;
    const auto give_up = [&](int status, const std::string& sentence) {
      for (const auto id : *self->ids_) scheduler.cancel(id);
      server.post([self, status, sentence] { self->refuse(ApiError(status, sentence)); });
    };
    if (scheduler.is_full()) return give_up(429, "too many requests wait; come again later");
    try {
      for (std::size_t i = 0; i < all.size(); ++i)
        self->ids_->push_back(scheduler.submit(std::move(all[i]), [self, i](const llm::News& news) {
          self->service_.server.post([self, i, news] { self->take(i, news); });
        }));
    } catch (const formats::Error& error) {
      give_up(400, error.what());
    } catch (const std::bad_alloc&) {
      give_up(503, "the system has no memory for this request; come again later");
    }
  });
  patience_ =
      service_.server.after(service_.queue_seconds, [weak = weak_from_this(), seconds = service_.queue_seconds] {
        const auto late = weak.lock();
        if (!late || late->is_over_ || late->has_started_) return;
        late->stop_work();
        late->refuse(ApiError(
            503, formats::joined("the request waited for ", seconds, " seconds and was not begun; come again later")));
      });
}

void Work::stop_work() {
  service_.engine->post(model_.scheduler, [ids = ids_](llm::Scheduler& scheduler) {
    for (const auto id : *ids) scheduler.cancel(id);
  });
}

void Work::take(std::size_t at, const llm::News& news) {
  if (is_over_) return;
  if (news.has_started || news.finish) take_cached(at, news.cached);
  if (news.has_started) {
    has_started_ = true;
    patience_ = nullptr;
  } else if (!news.error.empty()) {
    stop_work();
    refuse(ApiError(500, news.error));
  } else {
    hear(at, news);
  }
}

/// Ends a request that cannot be answered.
void Work::refuse(const ApiError& error) {
  if (std::exchange(is_over_, true)) return;
  patience_ = nullptr;
  fail(error);
  origin_.ended({id_, model_.name, error.status, {}, seconds(), error.what(), ""});
}

void Work::end(const std::string& finish, const std::string& text) {
  is_over_ = true;
  patience_ = nullptr;
  const Ended ended{id_, model_.name, 200, usage(), seconds(), finish, text};
  service_.metrics.whole_request.add(ended.seconds);
  origin_.ended(ended);
}

Json Work::state() const {
  const Usage of = usage();
  return {{"id", id_},
          {"model", model_.name},
          {"state", !has_started_     ? "waiting"
                    : of.written == 0 ? "reading"
                                      : "answering"},
          {"client", origin_.client},
          {"prompt_tokens", of.prompt},
          {"completion_tokens", of.written},
          {"seconds", seconds()}};
}

}  // namespace bie::cli
