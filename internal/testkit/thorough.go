package testkit

import "os"

// Thorough returns all in a thorough run (QUORUMLOCK_THOROUGH=1, as every night), and few
// otherwise.
func Thorough[T any](all, few T) T {
	if os.Getenv("QUORUMLOCK_THOROUGH") == "1" {
		return all
	}
	return few
}
