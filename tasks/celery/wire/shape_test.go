package wire

import "bytes"

// looksLikeEnvelope is the test that the taking script makes on every message
// before it puts it where Python workers may read it: an object by its first
// and last byte, in which the four words stand that a worker cannot do
// without. What fails it may still be an envelope (white space around it, a
// key written with escapes); what passes may still be malformed.
func looksLikeEnvelope(raw []byte) bool {
	return len(raw) > 1 && raw[0] == '{' && raw[len(raw)-1] == '}' &&
		bytes.Contains(raw, []byte(`"delivery_tag"`)) &&
		bytes.Contains(raw, []byte(`"delivery_info"`)) &&
		bytes.Contains(raw, []byte(`"headers"`)) &&
		bytes.Contains(raw, []byte(`"content-type"`))
}

// unackedEntry is an entry of the unacked hash as the taking script makes it.
func unackedEntry(raw []byte, exchange, routingKey string) []byte {
	return []byte("[" + string(raw) + UnackedSuffix(exchange, routingKey))
}
