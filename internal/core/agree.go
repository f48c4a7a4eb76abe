package core

// agree sets the token to the highest that a cell granted, and makes sure that a quorum of the cells counts on from
// there. Usually all agree already.
//
// Why tokens rise with every grant: two grants share a node that granted both. Before the first grant was over, the
// counter of that node was at least at the first grant's token, so the second grant got a higher one there. Only cells
// that granted are raised, and only while the owner has the lock there: a late raise could set the counter to a token
// that another holder has.
func (m *Machine) agree(now Time) {
	m.phase, m.token, m.giveUpAt = Agreeing, 0, 0
	for i := range m.Cells {
		m.token = max(m.token, m.tokenAt(i))
	}
	for i := range m.Cells {
		m.Cells[i].vote = m.vote(i)
	}
	m.changed++
	if m.tallies().holds(saidYes) {
		m.hold(now)
		return
	}
	for i := range m.Cells {
		if m.tokenAt(i) > 0 && m.Cells[i].vote == Unanswered {
			m.raise(i)
		}
	}
}

// vote is a cell's vote on the token, by what it granted: its counter may already be higher. It is Unanswered if the cell has to
// be raised, or has not answered the attempt.
func (m *Machine) vote(i int) Vote {
	switch token := m.tokenAt(i); {
	case token >= m.token:
		return Yes
	case token > 0, m.Cells[i].State == Asked && !m.successor:
		return Unanswered
	}
	return No
}

func (m *Machine) raise(i int) {
	m.call(Call{Do: Raise, Cell: int32(i), Attempt: m.attempt, Successor: m.successor, From: m.tokenAt(i), Token: m.token})
}

// join counts the vote of a cell that answers, or hands over, once the token is chosen. Otherwise one raise that fails would end an
// attempt that a quorum has granted. After lastTry a TryLock has no time for a raise.
func (m *Machine) join(now Time, i int) {
	c := &m.Cells[i]
	c.vote = m.vote(i)
	switch last := m.lastTry(); {
	case c.vote != Unanswered:
	case last != 0 && now.Mono >= last:
		c.vote = No
	default:
		m.raise(i)
	}
	m.decide(now)
}

// decide ends the agreement as soon as its votes do. It waits for silent cells as long as a refused attempt does.
func (m *Machine) decide(now Time) {
	switch t := m.tallies(); t.result(saidYes, maySayYes) {
	case VoteWon:
		m.hold(now)
	case VoteLost:
		m.disagree(now)
	default:
		if m.giveUpAt == 0 && !t.holds(mayTakeToken) { // every quorum needs a cell that has yet to answer the attempt
			m.giveUpAt = now.Mono + m.tolerance()
		}
	}
}

// tokenAt is the token of the owner that is about to hold, at a cell; 0 if it does not have it.
func (m *Machine) tokenAt(i int) uint64 {
	c := &m.Cells[i]
	switch {
	case c.apart:
		return 0
	case m.successor:
		return c.Handed
	case c.State == Granted:
		return c.Token
	}
	return 0
}

func (m *Machine) raised(now Time, call Call, r Reply) {
	if m.phase != Agreeing || call.Attempt != m.attempt || call.Successor != m.successor {
		return
	}
	c := &m.Cells[call.Cell]
	c.failed, c.vote = r.Err != nil, No
	if r.Err == nil && r.OK {
		c.vote = Yes
	}
	m.decide(now)
}

// disagree ends an attempt whose token no quorum has.
func (m *Machine) disagree(now Time) {
	if m.successor {
		for i := range m.Cells { // what the attempt's own owner has got is of no use
			if s := m.Cells[i].State; s == Granted || s == Unknown {
				m.call(Call{Do: Release, Cell: int32(i), Attempt: m.attempt})
			}
		}
		m.ask(now) // the next attempt takes over what the successor has
		return
	}
	for i := range m.Cells {
		if c := &m.Cells[i]; c.failed && c.State == Granted {
			c.State = Unknown // a yield that is not answered must not delay the next attempt
		}
	}
	m.changed++
	why := m.refusal()
	if why == HeldOrNone && m.cfg.Drift.Validity(m.cfg.TTL, now.Since(m.asked)) <= 0 { // the keys may have expired before the raise
		why = TooLate
	}
	m.abandonAttempt(now, why)
}
