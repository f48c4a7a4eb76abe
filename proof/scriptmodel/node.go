package scriptmodel

import (
	"errors"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Time is the time by the clock of a node, in µs since 1970. It must not be negative.
type Time int64

// Add returns the time that is d later. It rounds d down to a µs.
func (t Time) Add(d time.Duration) Time { return t + Time(d/time.Microsecond) }

// ms returns the whole milliseconds since 1970.
func (t Time) ms() int64 { return int64(t / 1000) }

// Message is a message that a script has published, perhaps to no subscriber.
type Message struct {
	Channel, Text string
}

// NoHistory is the former replication ID of a server that was never a replica.
const NoHistory = "0000000000000000000000000000000000000000"

// Info has the fields of INFO that the restart guard reads.
type Info struct {
	Denied  bool   // the user may not ask for it
	Run     string // run_id: the ID of the process
	Replica bool   // role: slave
	History string // master_replid: the ID of the history that the server writes
	// master_replid2: the ID of the history before that; NoHistory if there is none.
	Former  string
	Foreign bool // the server has none of these fields
}

// Node is the state of one Redis server, as the scripts see it. The zero value is not usable: call
// New. It is not safe for concurrent use.
type Node struct {
	Info Info
	// Receivers counts the subscribers of each channel. A release hands the lock over only if no
	// client has subscribed to the lock's unlock channel, as Redisson's clients do.
	Receivers map[string]int
	// Mute means that the user may not publish.
	Mute bool
	// Eager makes a key expire in the millisecond of its deadline, as in miniredis. Redis keeps it
	// until that millisecond is over.
	Eager bool

	keys  map[string]*key
	locks map[string]*places

	// The rest is about the call that runs.
	now      Time
	name     string   // KEYS[1]
	args     []string // ARGV
	words    []byte   // ARGV, one after another
	ends     []int    // of each
	spoken   strings.Builder
	lock     *key // KEYS[1]
	queue    *key // KEYS[2] of the scripts that include queue.lua, and of inspect.lua
	entries  *key // KEYS[3] of these
	token    *key // the last of KEYS, of the scripts that count; KEYS[4] of those of a semaphore
	slots    *key // KEYS[5] of the scripts of a semaphore
	fair     *key // who waits for a fair lock of Redisson's
	messages []Message
}

// New returns a node without any key, whose server is the process run.
func New(run string) *Node {
	return &Node{Info: Info{Run: run, History: "1", Former: NoHistory}, keys: make(map[string]*key), locks: make(map[string]*places)}
}

// places are where the keys of a lock are, or may be.
type places struct{ lock, queue, entries, token, slots, fair *key }

// The scripts, by their addresses.
var (
	acquireScript         = wire.Acquire("", "", 0, 0, 0).Script
	guardedScript         = wire.Acquire("", "", 0, 0, 0).Guarded(1).Script
	shareScript           = wire.Acquire("", "", 0, 0, 0).Shared().Script
	guardedShareScript    = wire.Acquire("", "", 0, 0, 0).Shared().Guarded(1).Script
	downgradeScript       = wire.Downgrade("", "", 0).Script
	raiseScript           = wire.Raise("", "", 0, 0, 0).Script
	renewScript           = wire.Renew("", "", 0).Script
	transferScript        = wire.Park("", "", "", 0, 0).Script
	guardedTransferScript = wire.Attach("", "", "", 0, 0, 0).Guarded(1).Script
	releaseScript         = wire.Release("", "", 0).Script
	openScript            = wire.Release("", "", 1).Open(0, "").Script
	leaveScript           = wire.Leave("", "", false).Script
	forceReleaseScript    = wire.ForceRelease("").Script
	inspectScript         = wire.Inspect("", 0).Script

	slotAcquireScript        = wire.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Script
	guardedSlotAcquireScript = wire.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Guarded(1).Script
	slotReleaseScript        = wire.Release("", "", 0).OfSemaphore(1, 0).Script
	slotLeaveScript          = wire.Leave("", "", false).OfSemaphore(1, 0).Script
	slotRenewScript          = wire.Renew("", "", 0).OfSemaphore(1, 0).Script
	slotRaiseScript          = wire.Raise("", "", 0, 0, 0).OfSemaphore(1, 0).Script
	slotInspectScript        = wire.Inspect("", 0).OfSemaphore(1, 0).Script
	slotForceReleaseScript   = wire.ForceRelease("").OfSemaphore(1, 0).Script

	latchScript = wire.LatchTail("", 1, 0).Script
)

var errUnknown = errors.New("NOSCRIPT the model has no such script")

// failure is an error that ends a script. Earlier writes of the script stay.
type failure string

func (f failure) Error() string { return string(f) }

// Run runs one call at the time now. It returns the reply, with the types of values that a client
// reads from Redis, and the published messages, in order. The messages are valid until the next
// Run.
func (n *Node) Run(now Time, c wire.Call) (reply wire.Reply, told []Message) {
	return n.Do(now, &c)
}

// Do is Run without a copy of the call.
func (n *Node) Do(now Time, c *wire.Call) (reply wire.Reply, told []Message) {
	n.now = now
	n.read(c)
	clear(n.messages)
	n.messages = n.messages[:0]
	defer func() {
		told = n.messages
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			reply = wire.Reply{Err: f}
		}
	}()
	switch c.Script {
	case acquireScript:
		n.open(c)
		reply = n.acquire()
	case shareScript:
		n.open(c)
		reply = n.share()
	case guardedScript, guardedShareScript, guardedSlotAcquireScript:
		n.open(c)
		if refusal, out := n.guard(c.Script == guardedSlotAcquireScript); out {
			return refusal, n.messages
		}
		switch c.Script {
		case guardedScript:
			reply = n.acquire()
		case guardedShareScript:
			reply = n.share()
		default:
			reply = n.slotAcquire()
		}
	case downgradeScript:
		n.open(c)
		reply = n.downgrade()
	case releaseScript:
		n.open(c)
		reply = n.release()
	case openScript:
		n.open(c)
		reply = n.leaveOpen()
	case leaveScript:
		n.open(c)
		reply = n.leave()
	case forceReleaseScript:
		n.open(c)
		reply = n.forceRelease()
	case inspectScript:
		n.open(c)
		reply = n.inspect()
	case raiseScript:
		n.openCounter()
		reply = n.raise()
	case renewScript:
		n.openCounter()
		reply = n.renew()
	case transferScript:
		n.openCounter()
		reply = n.transfer()
	case latchScript:
		n.openCounter()
		reply = n.latch(n.key(wire.LatchKey(n.name)))
	case guardedTransferScript:
		n.openCounter()
		if refusal, out := n.guard(true); out {
			return refusal, n.messages
		}
		reply = n.transfer()
	default:
		if c.KeyCount() < 5 {
			reply.Err = errUnknown
			break
		}
		n.open(c)
		reply = n.runSlots(c.Script)
	}
	return reply, n.messages
}

// read reads the arguments of a call, and the name of its lock.
func (n *Node) read(c *wire.Call) {
	if n.name = ""; c.KeyCount() > 0 {
		n.name = c.Lock()
	}
	n.words, n.ends, n.args = n.words[:0], n.ends[:0], n.args[:0]
	for i := range c.ArgCount() {
		n.words = c.AppendArg(n.words, i)
		n.ends = append(n.ends, len(n.words))
	}
	// One string has the arguments of many calls.
	if some := 1024; n.spoken.Cap()-n.spoken.Len() < len(n.words) {
		n.spoken = strings.Builder{}
		n.spoken.Grow(max(some, len(n.words)))
	}
	from := n.spoken.Len()
	n.spoken.Write(n.words)
	all := n.spoken.String()[from:]
	from = 0
	for _, end := range n.ends {
		n.args = append(n.args, all[from:end])
		from = end
	}
}

// open looks up the keys of a script that uses the queue. Leave and ForceRelease have no token.
func (n *Node) open(c *wire.Call) {
	at := n.placesOf(n.name)
	n.lock, n.queue, n.entries, n.token = n.fresh(at.lock), n.fresh(at.queue), n.fresh(at.entries), nil
	n.fair = n.fresh(at.fair)
	if count := c.KeyCount(); count > 3 {
		n.token = n.fresh(at.token)
		if count > 4 {
			n.slots = n.fresh(at.slots)
		}
	}
}

// openCounter looks up the keys of a script that knows the token alone.
func (n *Node) openCounter() {
	at := n.placesOf(n.name)
	n.lock, n.token, n.fair = n.fresh(at.lock), n.fresh(at.token), n.fresh(at.fair)
}

func (n *Node) placesOf(lock string) *places {
	at := n.locks[lock]
	if at == nil {
		at = &places{n.key(lock), n.key(wire.QueueKey(lock)), n.key(wire.EntriesKey(lock)), n.key(wire.TokenKey(lock)), n.key(wire.SlotsKey(lock)), n.key(wire.FairQueueKey(lock))}
		n.locks[lock] = at
	}
	return at
}

// publish sends a message to the subscribers of a channel, and returns their number; -1 if the user
// may not publish.
func (n *Node) publish(channel, text string) int {
	if n.Mute {
		return -1
	}
	n.messages = append(n.messages, Message{channel, text})
	return n.Receivers[channel]
}
