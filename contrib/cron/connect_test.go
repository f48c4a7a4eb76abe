package cronlock_test

import (
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect replaces redlock.Dial(urls): three servers in the process.
func connect() (client *redlock.Client, stop func()) {
	client, _, stop = locktest.Connect(3)
	return client, stop
}
