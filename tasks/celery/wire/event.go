package wire

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Types of worker events.
const (
	EventOnline    = "worker-online"
	EventHeartbeat = "worker-heartbeat"
	EventOffline   = "worker-offline"
)

// WorkerEvent is the state that a worker tells everyone who listens.
type WorkerEvent struct {
	Type      string        // [EventOnline], [EventHeartbeat] or [EventOffline]
	Hostname  string        // node name, such as solobeat@host
	PID       int           // process id
	Clock     int64         // Lamport clock, one more with each event
	Freq      time.Duration // between heartbeats; receivers wait twice as long
	Active    int           // tasks that run now
	Processed int           // tasks begun since the start
	Loadavg   [3]float64    // of the machine
	Ident     string        // sw_ident, such as solobeat
	Version   string        // sw_ver
	System    string        // sw_sys, such as Linux
	Time      time.Time     // when it happened
}

// EventChannel names the pub/sub channel of an event type, such as
// /0.celeryev/worker.heartbeat. db is the number of the broker's Redis
// database; it is text only, since channels are shared by all databases.
func EventChannel(db int, eventType string) string {
	return "/" + strconv.Itoa(db) + ".celeryev/" + eventRoute(eventType)
}

func eventRoute(eventType string) string { return strings.ReplaceAll(eventType, "-", ".") }

// EncodeEvent gives the envelope of a worker event, to be published on
// [EventChannel].
func EncodeEvent(ev WorkerEvent) ([]byte, error) {
	if ev.Type == "" || ev.Hostname == "" {
		return nil, errors.New("wire: encode event: it needs a type and a hostname")
	}
	body := writer{b: make([]byte, 0, 384)}
	body.event(ev)
	w := writer{b: make([]byte, 0, 1024)}
	w.lit(`{"body": "`)
	w.b = base64.StdEncoding.AppendEncode(w.b, body.b)
	w.lit(`", "content-encoding": "utf-8", "content-type": "application/json", "headers": {"hostname": `)
	w.str(ev.Hostname)
	w.lit(`}, "properties": {"delivery_mode": 1, "delivery_info": {"exchange": "celeryev", "routing_key": `)
	w.str(eventRoute(ev.Type))
	w.lit(`}, "priority": 0, "body_encoding": "base64", "delivery_tag": `)
	w.str(NewID())
	w.lit(`}}`)
	return w.b, nil
}

// event writes the body. utcoffset is 0: the timestamp is UTC, and receivers
// would shift it by their own.
func (w *writer) event(ev WorkerEvent) {
	w.lit(`{"hostname": `)
	w.str(ev.Hostname)
	w.lit(`, "utcoffset": 0, "pid": `)
	w.int(ev.PID)
	w.lit(`, "clock": `)
	w.b = strconv.AppendInt(w.b, ev.Clock, 10)
	w.lit(`, "freq": `)
	w.float(ev.Freq.Seconds())
	w.lit(`, "active": `)
	w.int(ev.Active)
	w.lit(`, "processed": `)
	w.int(ev.Processed)
	w.lit(`, "loadavg": [`)
	for i, l := range ev.Loadavg {
		if i > 0 {
			w.lit(", ")
		}
		w.float(l)
	}
	w.lit(`], "sw_ident": `)
	w.str(ev.Ident)
	w.lit(`, "sw_ver": `)
	w.str(ev.Version)
	w.lit(`, "sw_sys": `)
	w.str(ev.System)
	w.lit(`, "timestamp": `)
	w.float(float64(ev.Time.UnixMicro()) / 1e6)
	w.lit(`, "type": `)
	w.str(ev.Type)
	w.lit(`}`)
}
