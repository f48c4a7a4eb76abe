package lockorder

import (
	"strings"
	"sync"
	"testing"
)

func TestMutexesMustBeTakenInOrder(t *testing.T) {
	var (
		call   Mutex[Session]
		other  Mutex[Session]
		client Mutex[Leaf]
	)
	entered := 0
	said := func(f func()) (what string) {
		defer func() {
			if r := recover(); r != nil {
				what = r.(string)
			}
		}()
		f()
		return ""
	}
	call.Lock()
	client.Lock()
	entered++
	client.Unlock()
	call.Unlock()
	client.Lock() // the mutexes that were unlocked do not count
	if what := said(call.Lock); !strings.Contains(what, "Session is taken while that of Leaf is held") {
		t.Errorf("the wrong order: %q", what)
	}
	var elsewhere sync.WaitGroup
	elsewhere.Go(func() { // another goroutine holds nothing
		call.Lock()
		entered++
		call.Unlock()
	})
	elsewhere.Wait()
	if entered != 2 {
		t.Errorf("entered %d times, want twice", entered)
	}
	client.Unlock()
	call.Lock()
	defer call.Unlock()
	if what := said(other.Lock); !strings.Contains(what, "Session is taken while that of Session is held") {
		t.Errorf("two of a kind: %q", what)
	}
}
