package schedredis

import "github.com/solobeat/solobeat/internal/redisconn"

// Plain makes the state send its scripts without flags, as to a server that
// does not take them.
func (s *State) Plain() { s.runner = redisconn.NewPlainRunner(s.client) }
