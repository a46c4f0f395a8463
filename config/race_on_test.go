//go:build race

package config

// slow: the race detector makes everything about ten times slower.
const slow = 10
