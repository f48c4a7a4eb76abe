package locktest

import "os"

// Thorough returns all in a thorough run, as the nightly workflow has one with QUORUMLOCK_THOROUGH=1, and few otherwise.
func Thorough[T any](all, few T) T {
	if os.Getenv("QUORUMLOCK_THOROUGH") == "1" {
		return all
	}
	return few
}
