package lockorder

import (
	"strings"
	"sync"
	"testing"
)

func TestAMutexIsTakenInOrderOnly(t *testing.T) {
	var (
		call   Mutex[Call]
		other  Mutex[Call]
		client Mutex[Client]
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
	client.Lock() // nothing is left of what was unlocked
	if what := said(call.Lock); !strings.Contains(what, "Call is taken by whoever has that of Client") {
		t.Errorf("the wrong order: %q", what)
	}
	var elsewhere sync.WaitGroup
	elsewhere.Go(func() { // another goroutine has nothing
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
	if what := said(other.Lock); !strings.Contains(what, "Call is taken by whoever has that of Call") {
		t.Errorf("two of a kind: %q", what)
	}
}
