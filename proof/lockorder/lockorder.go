// Package lockorder checks the order in which the mutexes of the library are locked.
// TestMutexesAreTakenInOrder, in the simulation, builds the library with a [Mutex] in place of
// every sync.Mutex, and plays hostile schedules with it.
package lockorder

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// The mutexes, each with the state that it guards.
type (
	Subscriptions struct{} // a client's subscriptions
	Shards        struct{} // the hubs of a cluster
	Hub           struct{} // a node's subscriptions
	Call          struct{} // the machine of a call, and its hold
	RedissonPeers struct{} // which cells have Redisson's clients
	Renewals      struct{} // the renewals that are queued
	Retries       struct{} // the pending releases
	Latch         struct{} // the batch of ids that calls join
	Client        struct{} // the state shared by the locks of a client
	Seen          struct{} // the highest token seen of a lock
	Health        struct{} // which nodes are down
	Lane          struct{} // the queue of a lane
	Servers       struct{} // the addresses of a node's connections
	Single        struct{} // the calls of a node without lanes
)

// order is the order of the mutexes. A goroutine that holds one may lock only later ones, and so
// never two of a kind.
var order = []reflect.Type{
	reflect.TypeFor[Subscriptions](),
	reflect.TypeFor[Shards](),
	reflect.TypeFor[Hub](),
	reflect.TypeFor[Call](),
	reflect.TypeFor[RedissonPeers](),
	reflect.TypeFor[Renewals](),
	reflect.TypeFor[Retries](),
	reflect.TypeFor[Latch](),
	reflect.TypeFor[Client](),
	reflect.TypeFor[Seen](),
	reflect.TypeFor[Health](),
	reflect.TypeFor[Lane](),
	reflect.TypeFor[Servers](),
	reflect.TypeFor[Single](),
}

// Mutex is a sync.Mutex that panics if it is locked out of order. T is one of the types above. The
// zero value is unlocked.
type Mutex[T any] struct{ mu sync.Mutex }

// Lock panics if the goroutine holds a mutex that is later in the order, or another of this kind.
func (m *Mutex[T]) Lock() {
	take(reflect.TypeFor[T]())
	m.mu.Lock()
}

// Unlock must be called by the goroutine that has locked m.
func (m *Mutex[T]) Unlock() {
	m.mu.Unlock()
	release(reflect.TypeFor[T]())
}

var (
	mu   sync.Mutex
	held = make(map[int][]reflect.Type) // by goroutine
)

func take(t reflect.Type) {
	g := goroutine()
	mu.Lock()
	defer mu.Unlock()
	for _, h := range held[g] {
		if slices.Index(order, h) >= slices.Index(order, t) {
			panic(fmt.Sprintf("the mutex of %s is taken while that of %s is held", t.Name(), h.Name()))
		}
	}
	held[g] = append(held[g], t)
}

func release(t reflect.Type) {
	g := goroutine()
	mu.Lock()
	defer mu.Unlock()
	rest := slices.DeleteFunc(held[g], func(h reflect.Type) bool { return h == t })
	if held[g] = rest; len(rest) == 0 {
		delete(held, g)
	}
}

// goroutine returns the number of this goroutine, from a stack trace: `goroutine 7 [running]:`.
func goroutine() int {
	var room [64]byte
	_, after, _ := bytes.Cut(room[:runtime.Stack(room[:], false)], []byte(" "))
	digits, _, _ := bytes.Cut(after, []byte(" "))
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		panic(fmt.Sprintf("a stack trace begins with %q", room[:]))
	}
	return n
}
