package redisconn

import _ "embed" // unlock.lua

// UnlockSource is the Lua function unlock(lock, token, channel), to stand before
// the scripts that free locks: that of a lock by itself, and those of an engine
// that frees a run's lock in the step that settles its message.
//
//go:embed unlock.lua
var UnlockSource string
