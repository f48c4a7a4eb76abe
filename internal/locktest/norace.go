//go:build !race

package locktest

// UnlessRace returns all.
func UnlessRace[T any](all, _ T) T { return all }
