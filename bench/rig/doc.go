// Package rig starts what the benchmarks measure: private Redis servers, child
// processes whose CPU time is read, a TCP proxy that adds a delay and counts
// round trips. Everything it starts ends with the context that asked for it,
// and by the kernel's hand when the benchmark dies first. Linux
// only.
package rig
