package core

// A MultiLock with an unavailable member, whose nodes are down, must not keep other callers from
// its healthy members. So once a member lacks a quorum of votes, the waiter leaves the queues of
// the other members, and its attempts ask the lacking members alone. As soon as these have a quorum
// of votes, for or against, the same attempt asks the others, too. There the waiter joins the
// queues with the ticket of its call, ahead of all later callers.
//
// So an available lock is taken as before: the lowest ticket is the first in all queues, and there
// is no deadlock. A waiter that has left a queue holds nothing at its nodes.

// noteLacking notes the members without a quorum of votes in the last attempt, and those that have
// one again. It reports whether the next attempt asks these members alone.
func (m *Machine) noteLacking() bool {
	if m.cfg.Tree.up == nil || m.cfg.Tries || m.cfg.Source != nil || m.attempt == 1 {
		return false
	}
	t, lacking := m.tallies(), 0
	for i := range m.Cells {
		c := &m.Cells[i]
		switch {
		case !t.holdsOfMember(i, mayVote):
			c.lack(true)
		case t.holdsOfMember(i, hasVoted):
			c.lack(false)
		}
		if c.lacking {
			lacking++
		}
	}
	return 0 < lacking && lacking < len(m.Cells)
}

// spare leaves a cell out of the attempt that begins, and leaves its queue. A Leave that fails now
// is repeated later, and may take the waiter out of the queue after it has joined again. The
// waiter's next refresh puts it back. A Leave releases only known successors: an unknown one may
// belong to a later attempt.
func (m *Machine) spare(i int) {
	c := &m.Cells[i]
	last := Call{Do: Leave, Cell: int32(i), Attempt: m.attempt - 1}
	if c.mayHold() {
		last.Do = ReleaseAndLeave
	}
	if c.Standing != Spared && !c.isClear() {
		m.call(last)
	}
	former := c.former
	if c.HandedOver() {
		former = m.attempt - 1
	}
	if former > 0 {
		m.call(Call{Do: Release, Cell: int32(i), Attempt: former, Successor: true})
	}
	c.spare(i)
}

// askSpared asks the spared cells once each of the other members has a quorum of votes.
func (m *Machine) askSpared(now Time) {
	if !m.spares || !m.tallies().holds(isHeard) {
		return
	}
	m.spares = false
	for i := range m.Cells {
		if m.Cells[i].Standing == Spared {
			m.askCell(i)
		}
	}
	if m.giveUpAt != 0 {
		m.giveUpAt = now.Mono + m.tolerance()
	}
	m.nextLook = len(m.Cells)
	m.changed++
}
