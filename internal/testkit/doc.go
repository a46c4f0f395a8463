// Package testkit starts what tests need around the code under test: private
// Redis servers, a TCP proxy that loses replies, child processes with captured
// logs, the built binary, Python environments with real Celery versions.
//
// It is imported from _test.go files and from e2e only; nothing that ships may
// import it. Everything a function here starts ends with the test that asked
// for it, and by the kernel's hand when the test binary dies first. A missing
// prerequisite fails the test and names the cure; nothing skips.
package testkit
