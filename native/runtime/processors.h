// How many processors this process may use.
#pragma once

namespace octavo {

// Those that the calling thread (or OpenMP's threads) may run on, as far as the quota of its control group
// pays for them; at least 1. OCTAVO_PROCESSORS says another number. A change is noticed after some calls.
int processors();

}  // namespace octavo
