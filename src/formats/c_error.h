// Error handling of the C APIs: an exception becomes a status, and a sentence that the calling thread can ask for.
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "bie/formats/error.h"

namespace bie::formats {

/// Sentence of this thread's last failed call. Its size is fixed, so that reporting an error needs no memory.
inline thread_local char last_error[512];

template <class Status>
Status fail(Status status, const char* sentence) {
  std::snprintf(last_error, sizeof(last_error), "%s", sentence);
  return status;
}

/// Statuses that a call returns when its body throws an Error, runs out of memory, or throws anything else.
template <class Status>
struct Failures {
  Status error, no_memory, other;
};

template <class Status, class Body>
Status guarded(const Failures<Status>& statuses, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    return fail(statuses.error, error.what());
  } catch (const std::bad_alloc&) {
    return fail(statuses.no_memory, "there is not enough memory");
  } catch (const std::system_error&) {
    return fail(statuses.other, "expected so many threads, the system has fewer");
  } catch (const std::exception& error) {
    return fail(statuses.other, error.what());
  } catch (...) {
    return fail(statuses.other, "an error of no known kind");
  }
}

}  // namespace bie::formats
