package idempotency_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/idempotency"
)

// TestHashIsForever: a hash that changes with a version un-does every record.
func TestHashIsForever(t *testing.T) {
	t.Parallel()
	k := idempotency.Key{Namespace: "reports.hourly", Text: "report:2026-10-25T02+02:00"}
	h := k.Hash()
	if got, want := hex.EncodeToString(h[:]), "8785744affce034f8190b95729337ffd087e825a7b5c372ed3cdafb2ee4454db"; got != want {
		t.Errorf("hash of %s is %s, was %s", k, got, want)
	}
	fp, err := idempotency.Fingerprint([]string{"amount", "currency"}, map[string]json.RawMessage{"amount": []byte("10"), "currency": []byte(`"EUR"`)})
	if want := "ed18281104e8b5fe4849292ad6713a6a8d75d9a6bf1bb468b27adafac948769e"; err != nil || fp != want {
		t.Errorf("fingerprint %s, was %s; %v", fp, want, err)
	}
}

func TestHashTellsPartsApart(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]idempotency.Key{}
	for _, k := range []idempotency.Key{
		{Namespace: "a", Text: "b"},
		{Namespace: "", Text: "ab"},
		{Namespace: "ab", Text: ""},
		{Namespace: "a", Text: `b","c`},
		{Namespace: `a","b`, Text: "c"},
		{Namespace: "a", Text: "b\x00"},
		{Namespace: "a", Text: "<b>"},
		{Namespace: "a", Text: `\u003cb\u003e`},
	} {
		if other, taken := seen[k.Hash()]; taken {
			t.Errorf("%+v and %+v are one", k, other)
		}
		seen[k.Hash()] = k
	}
}

func TestDefaultKeys(t *testing.T) {
	t.Parallel()
	seen := map[idempotency.Key]bool{}
	for _, k := range []idempotency.Key{
		idempotency.JobKey("t", "hourly", "2026-10-25T02:00+02:00"),
		idempotency.JobKey("t", "hourly", "2026-10-25T02:00+01:00"), // the fold's other 02:00
		idempotency.JobKey("t", "hourly:2026-10-25T02", "00+02:00"),
		idempotency.JobKey("u", "hourly", "2026-10-25T02:00+02:00"),
		idempotency.TaskKey("t", "hourly"),
		idempotency.TaskKey("u", "hourly"),
		idempotency.TaskKey("t", "job:hourly:2026-10-25T02:00+02:00"),
	} {
		if err := k.Validate(); err != nil || seen[k] {
			t.Errorf("%+v: %v, seen before %v", k, err, seen[k])
		}
		seen[k] = true
	}
	if err := idempotency.TaskKey("t", "").Validate(); !errors.Is(err, idempotency.ErrKeyMissing) {
		t.Errorf("no id: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	fp := func(fields []string, payload string) string {
		t.Helper()
		var params map[string]json.RawMessage
		if err := json.Unmarshal([]byte(payload), &params); err != nil {
			t.Fatal(err)
		}
		s, err := idempotency.Fingerprint(fields, params)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	same := fp([]string{"amount", "to"}, `{"amount":10,"to":{"a":1,"b":2},"note":"x"}`)
	if got := fp([]string{"amount", "to"}, `{"to": {"b":2, "a":1}, "amount": 10, "note":"y"}`); got != same {
		t.Error("blanks, order and other fields make another print")
	}
	for _, other := range []string{
		`{"amount":20,"to":{"a":1,"b":2}}`, `{"amount":"10","to":{"a":1,"b":2}}`, `{"amount":10.0,"to":{"a":1,"b":2}}`,
		`{"amount":10,"to":{"a":2,"b":1}}`, `{"amount":{"a":1,"b":2},"to":10}`, `{"amount":null,"to":{"a":1,"b":2}}`,
	} {
		if fp([]string{"amount", "to"}, other) == same {
			t.Errorf("%s has the same print", other)
		}
	}
	if fp([]string{"n"}, `{"n":9007199254740993}`) == fp([]string{"n"}, `{"n":9007199254740992}`) {
		t.Error("integers beyond 2^53 are one")
	}
	if fp(nil, `{"n":1}`) != "" {
		t.Error("no fields have a print")
	}
	if _, err := idempotency.Fingerprint([]string{"amuont"}, map[string]json.RawMessage{"amount": []byte("1")}); !errors.Is(err, idempotency.ErrKeyMissing) || !strings.Contains(err.Error(), "amuont") {
		t.Errorf("a missing field: %v", err)
	}
}
