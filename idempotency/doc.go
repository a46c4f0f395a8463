// Package idempotency keeps one record per key, so that what was done is not
// done again: a second message, a redelivery or a retry with the same key meets
// the record and is answered from it.
//
// # States
//
//	absent ──claim──▶ in_progress ──complete──▶ completed   (replayed)
//	                    │  ▲  │
//	                    │  │  └──fail──▶ failed             (the error is replayed)
//	                    │  │
//	                 release claim
//	                    ▼  │
//	                  released
//
// A claim also takes an in_progress record over once its lease has passed. An
// operator's [Store.Forget] turns any record into a released one. Nothing else
// changes a record; a completed or failed one goes when its retention is over.
//
// # Three times
//
// The lease says how long an in_progress record keeps others out without being
// renewed: seconds. The done-marker is the completed state itself; it has no
// end of its own. The retention says when a finished record is dropped: days.
// Stores that fold these into one time to live block retries for hours after a
// crash, or run a finished payment again (powertools-lambda-python#1038,
// asynq#369).
//
// # Owner and fence
//
// Each claim attempt has an owner, 16 random bytes; only the owner may renew,
// complete, release or fail. Each grant has a fence that grows over takeovers,
// over forgetting, and over a store that lost its data, because it is never
// below the lock's fence or, where there is no lock, the store's clock in
// microseconds. A resource that refuses a smaller fence is safe from a holder
// that was paused and wakes up late; the record alone cannot protect it.
//
// A late completion is accepted as long as nobody else has taken the record
// over: the lease is not tested, the owner is.
//
// # What a record can do
//
// It makes double work harmless where the work is a function of its key. It
// does not make a foreign system's effect happen exactly once: between the
// effect and its completion a process can die, and the next claimant runs
// again. See the guarantees in the project's docs.
package idempotency
