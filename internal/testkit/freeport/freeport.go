// Package freeport finds ports for servers of tests that cannot choose a port themselves.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given has the addresses from earlier calls of Addr: their servers may not listen yet.
var given sync.Map

// Addr returns an address of this machine with a port on which nobody listens. Linux uses ports
// from 32768 on for outgoing connections. The returned port is below, so that no connection takes
// it before the server listens. Addr never returns the same address twice.
func Addr() (string, error) {
	var failed error
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000)))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			err = l.Close()
			if _, again := given.LoadOrStore(addr, true); !again {
				return addr, err
			}
		}
		if err != nil {
			failed = err
		}
	}
	return "", errors.Join(errors.New("no port is free"), failed)
}
