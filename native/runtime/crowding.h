// What threads that do not run when they are wanted have cost of late. Other programs may have the processors, and
// OpenMP's threads then wait for each other milliseconds long without letting go of theirs.
// docs/notes/processors.md: "Threads are left alone where others have the processors"
#pragma once

namespace octavo {

// Microseconds that this thread's next job is expected to lose by taking several threads: 0 on a quiet machine.
double expected_delay();

// That a job waited so much longer for its threads than their work explains.
void note_delay(double microseconds);

}  // namespace octavo
