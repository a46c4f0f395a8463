package celery

import (
	"encoding/json"
	"fmt"
)

// settleOp is one operation of settle.lua.
type settleOp struct {
	tag, key string
	result   []byte
	op       *op
}

// What settle.lua says of an operation that was done.
const (
	settleDone   = 1
	settleBeside = 2 // its dead letter is kept beside the stream
)

func (c *commit) settleOp() settleOp {
	return settleOp{tag: c.tagFor(), key: c.key, result: c.result, op: c.op}
}

func (o settleOp) encode() ([]byte, error) {
	full := *o.op
	full.Tag, full.Key = o.tag, o.key
	text, err := json.Marshal(&full)
	if err != nil {
		return nil, fmt.Errorf("celery: settle: %w", err)
	}
	return text, nil
}
