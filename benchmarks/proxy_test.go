package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// However many connections there are, each request is late by the delay.
func TestProxyDelaysEveryRequestOnce(t *testing.T) {
	f := needRedis(t, inMemory)
	const delay, connections = 50 * time.Millisecond, 10
	addrs, err := f.far([]time.Duration{delay})
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0], PoolSize: connections, MinIdleConns: connections})
	defer rdb.Close() //nolint:errcheck // a test's
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	took := make(chan time.Duration, connections)
	for range connections {
		go func() {
			start := time.Now()
			if err := rdb.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			took <- time.Since(start)
		}()
	}
	for range connections {
		if d := <-took; d < delay {
			t.Errorf("an answer after %v, sooner than the delay", d)
		}
	}
}
