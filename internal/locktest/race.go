//go:build race

package locktest

// UnlessRace returns few: the race detector makes each step ten times as long.
func UnlessRace[T any](_, few T) T { return few }
