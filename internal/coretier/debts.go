package coretier

import "time"

const (
	firstTry = 50 * time.Millisecond
	lastTry  = time.Second
)

// debt is what a process owes a node: calls that give something back and have failed, as in debts.go of package quorum.
type debt struct {
	process *process
	node    int
	calls   []item
	pause   time.Duration
	armed   int // counts the timers
	timed   bool
	busy    bool
}

func (d *debt) owe(it item, lasts time.Duration) {
	p := d.process
	if p.closed {
		return
	}
	it.owed, it.got, it.until = true, false, p.now.Mono+lasts
	d.calls = append(d.calls, it)
	if !d.timed && !d.busy {
		d.arm()
	}
}

func (d *debt) arm() {
	d.armed++
	d.timed = true
	armed := d.armed
	d.process.after(d.pause, func() {
		if d.armed == armed {
			d.pay()
		}
	})
}

// hurry pays at once, since the node has just answered.
func (d *debt) hurry() {
	if !d.busy && len(d.calls) > 0 {
		d.pay()
	}
}

func (d *debt) pay() {
	p := d.process
	if d.busy || p.closed {
		return
	}
	d.armed++
	d.timed = false
	due := d.calls[:0]
	for _, it := range d.calls {
		if it.until > p.now.Mono {
			due = append(due, it)
		}
	}
	d.calls = nil
	if len(due) == 0 {
		d.pause = firstTry
		return
	}
	d.busy = true
	l := &p.lanes[d.node*2+1]
	l.send(&batch{items: append([]item(nil), due...)}, lastTry, d)
}

// answered keeps what has failed again for the next try.
func (d *debt) answered(b *batch) {
	d.busy = false
	if d.process.closed {
		return
	}
	var left []item
	for _, it := range b.items {
		if it.reply.Err != nil && isDown(it.reply.Err) {
			it.got = false
			left = append(left, it)
		}
	}
	failed := len(left) > 0
	d.calls = append(left, d.calls...)
	if len(d.calls) == 0 {
		d.pause = firstTry
		return
	}
	if d.pause = min(2*d.pause, lastTry); !failed {
		d.pause = firstTry
	}
	d.arm()
}
