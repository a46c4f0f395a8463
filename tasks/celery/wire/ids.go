package wire

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
)

// NewID gives a random uuid4 in its usual text form.
func NewID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Origin names this process as Celery clients name themselves: gen<pid>@<host>.
func Origin() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return "gen" + strconv.Itoa(os.Getpid()) + "@" + host
}
