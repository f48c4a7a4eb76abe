package main

import "testing"

// BenchmarkLockUnlock is one caller of each design on Redis: it counts allocations. Profile it.
func BenchmarkLockUnlock(b *testing.B) {
	for _, d := range designs {
		if d.servers != onRedis {
			continue
		}
		b.Run(d.name, func(b *testing.B) {
			f, err := newFleet(b.Context(), inMemory)
			if err != nil {
				b.Fatal(err)
			}
			defer f.close() //nolint:errcheck // ends the servers
			c, err := d.open(f.redis.addrs[:d.nodes], 1)
			if err != nil {
				b.Fatal(err)
			}
			defer c.close() //nolint:errcheck // of no interest here
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lockUnlock(b.Context(), c, "alone"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
