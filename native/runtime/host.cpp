#include "runtime/host.h"

namespace octavo {
namespace {

thread_local Host* current = nullptr;

}  // namespace

Host* host() { return current; }

Hosted::Hosted(Host& h) : before_(current) { current = &h; }
Hosted::~Hosted() { current = before_; }

}  // namespace octavo
