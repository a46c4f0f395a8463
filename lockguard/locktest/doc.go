// Package locktest is the conformance suite that every back end of package
// lockguard passes, and a back end in memory for tests of code that takes locks.
//
// [Exercise] runs it: first the back end alone, then a Guard on it, then a Guard
// whose network loses replies, falls silent and delays, and whose server is
// stopped, flushed and interfered with. What a [Harness] cannot do is left out
// by leaving its field nil, which is for back ends that have no such thing, not
// for such as fail the case.
package locktest
