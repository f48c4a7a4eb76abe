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

// The levels of the mutexes, from the first to the last. A goroutine that holds a mutex may lock
// only those of later levels, and so never two of a level.
type (
	Subscriptions struct{} // a client's subscriptions
	Hub           struct{} // the subscriptions of a node, or of one slot of a cluster
	Session       struct{} // the machine of a session, and its hold
	Leaf          struct{} // all others
)

var levels = []reflect.Type{
	reflect.TypeFor[Subscriptions](),
	reflect.TypeFor[Hub](),
	reflect.TypeFor[Session](),
	reflect.TypeFor[Leaf](),
}

// Mutex is a sync.Mutex that panics if it is locked out of order. T is one of the levels. The
// zero value is unlocked.
type Mutex[T any] struct{ mu sync.Mutex }

// Lock panics if the goroutine holds a mutex of this level, or of a later one.
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
		if slices.Index(levels, h) >= slices.Index(levels, t) {
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
