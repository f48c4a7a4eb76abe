package scriptmodel

import (
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/scripts"
)

// Time is what the clock of a node shows, in µs since 1970. It must not be negative.
type Time int64

// Add returns the time that is d later. It rounds d down to a µs.
func (t Time) Add(d time.Duration) Time { return t + Time(d/time.Microsecond) }

// ms returns the whole milliseconds since 1970.
func (t Time) ms() int64 { return int64(t / 1000) }

// Message is a message that a script has published. Nobody needs to hear it.
type Message struct {
	Channel, Text string
}

// NoHistory is the former replication ID of a server that was never a replica.
const NoHistory = "0000000000000000000000000000000000000000"

// Info is what the restart guard reads in INFO.
type Info struct {
	Denied  bool   // the user may not ask for it
	Started Time   // when the server was started, by its clock
	History string // master_replid: the ID of the history that the server writes
	Former  string // master_replid2: the ID of the history that it went on from; NoHistory if there is none
	Foreign bool   // the server has none of these fields
}

// Node is the state of one Redis server, as the scripts see it. The zero value is not usable: call New. It is not
// safe for concurrent use.
type Node struct {
	Info Info
	// Receivers counts the subscribers of each channel. A release hands the lock over only if nobody has
	// subscribed to the lock's unlock channel, as Redisson's clients do.
	Receivers map[string]int
	// Mute says that the user may not publish.
	Mute bool
	// Eager makes a key expire in the millisecond of its deadline, as miniredis does. Redis keeps it until that
	// millisecond is over.
	Eager bool

	keys map[string]*key

	// The rest is about the call that runs.
	now      Time
	name     []string // KEYS
	args     []string // ARGV
	words    []byte   // both, one after another
	ends     []int    // of each
	lock     *key     // KEYS[1]
	queue    *key     // KEYS[2] of the scripts that include queue.lua, and of inspect.lua
	entries  *key     // KEYS[3] of these
	token    *key     // the last of KEYS, of the scripts that count; KEYS[4] of those of a semaphore
	slots    *key     // KEYS[5] of the scripts of a semaphore
	messages []Message
}

// New returns a node without any key, which was started at the time started.
func New(started Time) *Node {
	return &Node{Info: Info{Started: started, History: "1", Former: NoHistory}, keys: make(map[string]*key)}
}

// The scripts, by their addresses.
var (
	acquireScript      = scripts.Acquire("", "", 0, 0, 0).Script
	guardedScript      = scripts.Acquire("", "", 0, 0, 0).Guarded(1).Script
	shareScript        = scripts.Acquire("", "", 0, 0, 0).Shared().Script
	guardedShareScript = scripts.Acquire("", "", 0, 0, 0).Shared().Guarded(1).Script
	downgradeScript    = scripts.Downgrade("", "", 0).Script
	raiseScript        = scripts.Raise("", "", 0, 0, 0).Script
	renewScript        = scripts.Renew("", "", 0).Script
	releaseScript      = scripts.Release("", "", 0).Script
	openScript         = scripts.Release("", "", 1).Open(0, "").Script
	leaveScript        = scripts.Leave("", "", false).Script
	forceReleaseScript = scripts.ForceRelease("").Script
	inspectScript      = scripts.Inspect("", 0).Script

	slotAcquireScript        = scripts.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Script
	guardedSlotAcquireScript = scripts.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Guarded(1).Script
	slotReleaseScript        = scripts.Release("", "", 0).OfSemaphore(1, 0).Script
	slotLeaveScript          = scripts.Leave("", "", false).OfSemaphore(1, 0).Script
	slotRenewScript          = scripts.Renew("", "", 0).OfSemaphore(1, 0).Script
	slotRaiseScript          = scripts.Raise("", "", 0, 0, 0).OfSemaphore(1, 0).Script
	slotInspectScript        = scripts.Inspect("", 0).OfSemaphore(1, 0).Script
	slotForceReleaseScript   = scripts.ForceRelease("").OfSemaphore(1, 0).Script
)

var errUnknown = errors.New("NOSCRIPT the model has no such script")

// failure is an error that ends a script. What the script has written before stays.
type failure string

func (f failure) Error() string { return string(f) }

// Run runs one call at the time now. It returns the reply, with the same types of values that a client reads from
// Redis, and what was published, in order. The messages are valid until the next Run.
func (n *Node) Run(now Time, c scripts.Call) (reply scripts.Reply, told []Message) {
	return n.Do(now, &c)
}

// Do is Run for a call that is not to be copied.
func (n *Node) Do(now Time, c *scripts.Call) (reply scripts.Reply, told []Message) {
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
			reply = scripts.Reply{Err: f}
		}
	}()
	switch c.Script {
	case acquireScript:
		n.open()
		reply = n.acquire()
	case shareScript:
		n.open()
		reply = n.share()
	case guardedScript, guardedShareScript, guardedSlotAcquireScript:
		n.open()
		if left, out := n.guard(c.Script == guardedSlotAcquireScript); out {
			return scripts.Integers(3, int64(left), -1), n.messages
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
		n.open()
		reply = n.downgrade()
	case releaseScript:
		n.open()
		reply = n.release()
	case openScript:
		n.open()
		reply = n.leaveOpen()
	case leaveScript:
		n.open()
		reply = n.leave()
	case forceReleaseScript:
		n.open()
		reply = n.forceRelease()
	case inspectScript:
		n.open()
		reply = n.inspect()
	case raiseScript:
		n.lock, n.token = n.key(n.name[0]), n.key(n.name[1])
		reply = n.raise()
	case renewScript:
		n.lock, n.token = n.key(n.name[0]), n.key(n.name[1])
		reply = n.renew()
	default:
		if len(n.name) < 5 {
			reply.Err = errUnknown
			break
		}
		n.open()
		reply = n.runSlots(c.Script)
	}
	return reply, n.messages
}

// read reads the keys and arguments of a call.
func (n *Node) read(c *scripts.Call) {
	b, keys, args := n.words[:0], c.KeyCount(), c.ArgCount()
	n.ends = n.ends[:0]
	for i := range keys {
		b = c.AppendKey(b, i)
		n.ends = append(n.ends, len(b))
	}
	for i := range args {
		b = c.AppendArg(b, i)
		n.ends = append(n.ends, len(b))
	}
	n.words = b
	all, from := string(b), 0 // one string for all of them
	n.name, n.args = n.name[:0], n.args[:0]
	for i, end := range n.ends {
		if i < keys {
			n.name = append(n.name, all[from:end])
		} else {
			n.args = append(n.args, all[from:end])
		}
		from = end
	}
}

// open looks up the keys of a script that knows the queue. Leave and ForceRelease have no token.
func (n *Node) open() {
	n.lock, n.queue, n.entries, n.token = n.key(n.name[0]), n.key(n.name[1]), n.key(n.name[2]), nil
	if len(n.name) > 3 {
		n.token = n.key(n.name[3])
	}
	if len(n.name) > 4 {
		n.slots = n.key(n.name[4])
	}
}

// publish tells the subscribers of a channel, and returns how many there are; -1 if the user may not publish.
func (n *Node) publish(channel, text string) int {
	if n.Mute {
		return -1
	}
	n.messages = append(n.messages, Message{channel, text})
	return n.Receivers[channel]
}
