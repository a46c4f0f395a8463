//go:build !race

package config

const slow = 1
