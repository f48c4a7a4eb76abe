package simulation

import (
	"container/heap"
	"time"
)

// post is the queue of scheduled actions: one goroutine runs them, in the order of time. All
// methods are called with the world's mutex held.
type post struct {
	queue   letters
	earlier chan struct{} // a letter precedes the awaited one; capacity 1
}

// letter is an action at a time.
type letter struct {
	at    time.Time
	dice  dice // orders letters of one instant
	bring func()
}

func newPost() *post { return &post{earlier: make(chan struct{}, 1)} }

func (p *post) send(after time.Duration, d dice, bring func()) {
	l := letter{time.Now().Add(after), d, bring}
	heap.Push(&p.queue, l)
	if p.queue[0].dice == d {
		select {
		case p.earlier <- struct{}{}:
		default:
		}
	}
}

// run runs the letters until stop is closed.
func (w *world) run(stop <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		for len(w.post.queue) > 0 && !w.post.queue[0].at.After(time.Now()) {
			heap.Pop(&w.post.queue).(letter).bring()
		}
		wait := time.Hour
		if len(w.post.queue) > 0 {
			wait = time.Until(w.post.queue[0].at)
		}
		w.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-stop:
			return
		case <-w.post.earlier:
		case <-timer.C:
		}
	}
}

type letters []letter

func (l letters) Len() int { return len(l) }
func (l letters) Less(i, j int) bool {
	if c := l[i].at.Compare(l[j].at); c != 0 {
		return c < 0
	}
	return l[i].dice < l[j].dice
}
func (l letters) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *letters) Push(x any)   { *l = append(*l, x.(letter)) }
func (l *letters) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	(*l)[last] = letter{}
	*l = (*l)[:last]
	return x
}
