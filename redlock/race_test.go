//go:build race

package redlock_test

// unlessRace returns few: the race detector makes each step ten times as long.
func unlessRace[T any](_, few T) T { return few }
