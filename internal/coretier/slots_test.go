package coretier

// The schedules have no semaphores: those of package slottier have.
func init() {
	const slots = "it is for semaphores: see internal/slottier"
	for _, name := range []string{
		"attempt.go: ask: m.like()",
		"attempt.go: acquired: c.apart = c.State == Granted && m.phase > Asking && c.slot != m.slotAt(int(call.Cell))",
		"attempt.go: acquired: m.move(int(call.Cell))",
		"attempt.go: note: c.slot = r.Slot",
		"attempt.go: count: m.align(slotGranted)",
		"attempt.go: count: m.hurry(now)",
		"attempt.go: tolerance: if m.hasSlots() { ...",
		"attempt.go: tolerance: doublings /= 4",
		"attempt.go: hurry: if m.silence == 0 { ...",
		"attempt.go: hurry: m.silence = now.Mono + m.tolerance()",
		"attempt.go: hurry: if m.others && !m.cfg.Tries && short < m.silence && m.hurried < few && !m.isRefused() { ...",
		"attempt.go: hurry: m.silence = short",
		"attempt.go: hurry: m.hurried++",
		"agree.go: tokenAt: return 0",
		"attempt.go: isUndecided: if m.isApart() || m.isSplit() && m.attempt < maxSplits { ...",
		`attempt.go: isUndecided: return true, "", false`,
		"hold.go: leaveQueue: if c.apart { ...",
		"hold.go: leaveQueue: m.move(i)",
		"hold.go: leaveQueue: m.move(i) (2)",
		"machine.go: Step: c.Called, c.released, c.named = true, e.Slot, m.isSlot(int(e.Cell), e.Slot)",
		"machine.go: Step: m.review(now) (2)",
		"machine.go: call: c.Slot = m.slotAt(int(c.Cell))",
		"wait.go: handed: c.apart = slot != m.slotAt(cell)",
		"wait.go: handedOver: m.align(slotHanded)",
	} {
		unnoticed[name] = slots
	}
	unnoticed["wait.go: handedOver: if !some { ..."] = costs
	unnoticed["wait.go: handedOver: return false"] = costs
}
