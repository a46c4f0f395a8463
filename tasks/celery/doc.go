// Package celery is the Celery engine: it takes messages from kombu's lists on
// Redis, hands them to a [tasks.Runner], and writes results and acks as a
// Celery worker would, so that Python clients and workers are its peers.
//
//	eng, err := celery.New(cfg)      // checks the configuration
//	err = eng.Probe(ctx)             // tries what the server must allow
//	err = eng.Run(ctx, runner)       // until ctx is cancelled, then an orderly end
//
// [Client] sends tasks and reads results, [Admin] lists queues, dead letters
// and replicas.
//
// # How a message is taken
//
// Every list of every queue has a waiter, one BLMOVE to an in-flight list of
// this replica. When it fires, one script (the cycle) acks what has finished,
// writes the results, frees the locks of their runs and moves messages from the lists into kombu's own
// unacked hash under tags of this replica. The call has a number; a call whose
// reply was lost is sent again under the same number and answered from what
// the first one did. So at no instant is a message only in this process.
//
// A replica tells every 3 s that it lives. Peers bury one that has not for
// 10 s, and put what it held back to the lists and ends it came from. Its own
// late commits are dropped then, since its tags are gone.
//
// What waits for a time (an ETA, a retry, a busy lock) is parked: it stays in
// unacked under a tag of no replica, so that a Python worker gets it if no
// replica is left.
package celery
