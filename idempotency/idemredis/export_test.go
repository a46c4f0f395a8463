package idemredis

import "github.com/solobeat/solobeat/internal/redisconn"

// Plain makes the store send its scripts without flags, as to a server that
// does not take them.
func (s *Store) Plain() { s.use(redisconn.NewPlainRunner(s.client)) }
