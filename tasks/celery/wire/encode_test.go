package wire

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEncodeFillsInWhatAClientSends(t *testing.T) {
	t.Parallel()
	raw, err := Encode(&Message{
		ID: "i", Task: "tasks.add", RoutingKey: "celery", Args: []json.RawMessage{json.RawMessage("2"), json.RawMessage(`"ü"`)},
		Kwargs:  map[string]json.RawMessage{"b": json.RawMessage("[1,2]"), "a": json.RawMessage("1e3")},
		Headers: map[string]json.RawMessage{"traceparent": json.RawMessage(`"00"`), "a": json.RawMessage("{}")}, Priority: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"headers": {"lang": "go", "task": "tasks.add", "id": "i", "shadow": null, "eta": null, "expires": null, "group": null, ` +
			`"group_index": null, "retries": 0, "timelimit": [null, null], "root_id": "i", "parent_id": null, ` +
			`"argsrepr": "(2, '\u00fc')", "kwargsrepr": "{'a': 1e3, 'b': [1, 2]}", "origin": "` + Origin() + `", "ignore_result": null, ` +
			`"replaced_task_nesting": 0, "stamped_headers": null, "stamps": {}, "a": {}, "traceparent": "00"}`,
		`"properties": {"correlation_id": "i", "reply_to": "", "delivery_mode": 2, "delivery_info": {"exchange": "", ` +
			`"routing_key": "celery"}, "priority": 9, "body_encoding": "base64", "delivery_tag": "`,
	} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("%s\nlacks %s", raw, part)
		}
	}
	if !regexp.MustCompile(`^gen\d+@.`).MatchString(Origin()) {
		t.Error(Origin())
	}
}

func TestDeliveryTagsAreUnique(t *testing.T) {
	t.Parallel()
	uuid4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 1000 {
		raw, err := Encode(&Message{ID: "i", Task: "t"})
		if err != nil {
			t.Fatal(err)
		}
		tag := mustDecode(t, raw).DeliveryTag
		if seen[tag] || !uuid4.MatchString(tag) {
			t.Fatalf("tag %q", tag)
		}
		seen[tag] = true
	}
}

func TestEncodeRefusesWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	bad := json.RawMessage("NaN")
	for name, m := range map[string]*Message{
		"no id":        {Task: "t"},
		"no task":      {ID: "i"},
		"arg":          {ID: "i", Task: "t", Args: []json.RawMessage{bad}},
		"empty arg":    {ID: "i", Task: "t", Args: []json.RawMessage{nil}},
		"two values":   {ID: "i", Task: "t", Args: []json.RawMessage{json.RawMessage("1, 2")}},
		"not UTF-8":    {ID: "i", Task: "t", Args: []json.RawMessage{json.RawMessage("\"\xff\"")}},
		"kwarg":        {ID: "i", Task: "t", Kwargs: map[string]json.RawMessage{"k": json.RawMessage("{")}},
		"header":       {ID: "i", Task: "t", Headers: map[string]json.RawMessage{"k": bad}},
		"known header": {ID: "i", Task: "t", Headers: map[string]json.RawMessage{"eta": json.RawMessage(`"x"`)}},
		"embed":        {ID: "i", Task: "t", Embed: Embed{Chain: json.RawMessage("[")}},
	} {
		if raw, err := Encode(m); err == nil {
			t.Errorf("%s: %s", name, raw)
		}
	}
}

func TestStringsAreWrittenAsPythonDoes(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"a\"\\/<>&": `"a\"\\/<>&"`, "\n\r\t\b\f\x00\x1f\x7f": `"\n\r\t\b\f\u0000\u001f\u007f"`,
		"ä日\u2028😀": `"\u00e4\u65e5\u2028\ud83d\ude00"`,
	} {
		if got := string(appendString(nil, s)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for s, want := range map[string]string{
		` { "a" : [ 1 , "\/\u0041\u00E4\u000a\ud800" , 1E+2 ] } `: `{"a": [1, "/A\u00e4\n\ud800", 1E+2]}`,
		`"\u0022\u005c"`: `"\"\\"`, `[]`: `[]`, `{"a":{}}`: `{"a": {}}`,
	} {
		got, err := appendRaw(nil, []byte(s))
		if err != nil || string(got) != want {
			t.Errorf("%s, want %s, %v", got, want, err)
		}
	}
}

func TestFloatsLookLikeFloats(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		742: "742.0", 0: "0.0", -1: "-1.0", 0.5: "0.5", 1795968580.5: "1795968580.5", 1e21: "1000000000000000000000.0", 1e-7: "0.0000001",
		math.Inf(1): "0.0",
	} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestEventsNeedTypeAndHost(t *testing.T) {
	t.Parallel()
	for _, ev := range []WorkerEvent{{Type: EventOnline}, {Hostname: "h"}} {
		if raw, err := EncodeEvent(ev); err == nil {
			t.Errorf("%s", raw)
		}
	}
	if got := EventChannel(2, EventOffline); got != "/2.celeryev/worker.offline" {
		t.Error(got)
	}
}

func TestQueueKeys(t *testing.T) {
	t.Parallel()
	want := []string{"q", "q", "q", "q\x06\x163", "q\x06\x163", "q\x06\x163", "q\x06\x166", "q\x06\x166", "q\x06\x166", "q\x06\x169"}
	for p, key := range want {
		if got := QueueKey("q", p); got != key {
			t.Errorf("priority %d: %q, want %q", p, got, key)
		}
		if queue, step := SplitQueueKey(key); queue != "q" || step != PriorityStep(p) {
			t.Errorf("%q: %q %d", key, queue, step)
		}
	}
	if QueueKey("q", 50) != want[9] || QueueKey("q", -1) != "q" {
		t.Error("priorities out of range are clamped")
	}
	for i, key := range PriorityKeys("q") {
		if _, step := SplitQueueKey(key); step != PrioritySteps()[i] {
			t.Errorf("key %d: %q", i, key)
		}
	}
	for key, queue := range map[string]string{
		"a\x06\x16b": "a\x06\x16b", "a\x06\x16b\x06\x166": "a\x06\x16b", "\x06\x163": "", "a\x06\x160": "a\x06\x160", "3": "3",
	} {
		if got, _ := SplitQueueKey(key); got != queue {
			t.Errorf("%q: %q, want %q", key, got, queue)
		}
	}
	if BindingMember("celery", "", "celery") != "celery\x06\x16\x06\x16celery" {
		t.Error("binding member")
	}
	if a, b := BindingKeys("celery"); a != "_kombu.binding.celery" || b != "_kombu.binding_permanent.celery" {
		t.Error(a, b)
	}
	if ResultKey("i") != "celery-task-meta-i" {
		t.Error("result key")
	}
}

// Times are written by hand as by their layout.
func TestTimeText(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 9*3600)
	for _, year := range []int{-1, 0, 1, 99, 476, 1999, 2026, 9999, 10000} {
		for _, at := range []time.Time{
			time.Date(year, 1, 2, 3, 4, 5, 6_007_008, time.UTC), time.Date(year, 12, 31, 23, 59, 59, 999_999_999, zone),
			time.Date(year, 10, 20, 0, 0, 0, 100_000_000, zone),
		} {
			want := at.UTC().Format("2006-01-02T15:04:05.000000+00:00")
			if got := string(appendTime(nil, at)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}
