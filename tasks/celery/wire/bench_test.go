package wire

import (
	"encoding/json"
	"testing"
	"time"
)

func BenchmarkDecode(b *testing.B) {
	raw := golden(b, "5.7.0", "message_plain.json")
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAndEncodeResult(b *testing.B) {
	raw := golden(b, "5.7.0", "message_plain.json")
	now := time.Now()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		m, err := Decode(raw)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := EncodeResult(&Result{TaskID: m.ID, State: StateSuccess, Value: m.Args[0], DateDone: now}); err != nil {
			b.Fatal(err)
		}
	}
}

// The same with encoding/json into structs, for comparison.
func BenchmarkDecodeWithEncodingJSON(b *testing.B) {
	raw := golden(b, "5.7.0", "message_plain.json")
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		var m struct {
			Body       []byte
			Headers    map[string]json.RawMessage
			Properties map[string]json.RawMessage
		}
		var body [3]json.RawMessage
		var args []json.RawMessage
		if json.Unmarshal(raw, &m) != nil || json.Unmarshal(m.Body, &body) != nil || json.Unmarshal(body[0], &args) != nil {
			b.Fatal("does not decode")
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	m := &Message{ID: NewID(), Task: "tasks.add", RoutingKey: "celery", Args: []json.RawMessage{json.RawMessage("2"), json.RawMessage("3")}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRedeliver(b *testing.B) {
	raw := golden(b, "5.7.0", "message_plain.json")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Redeliver(raw, 1); err != nil {
			b.Fatal(err)
		}
	}
}
