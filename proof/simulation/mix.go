package simulation

import (
	"math/rand/v2"
	"slices"
	"time"
)

// mixes makes some processes of some seeds clients of the version before, as during an upgrade of a
// fleet. Then tokens depend on clocks that agree: see docs/design/tokens.md. Its own generator keeps
// the other seeds unchanged.
func (p *Plan) mixes() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x3e5e))}
	if p.Class == beyond || len(p.Java) > 0 || !g.chance(0.05) {
		return
	}
	for i := range p.Clocks {
		p.Clocks[i].Offset = g.between(-20*time.Second, 20*time.Second)
	}
	first := g.IntN(len(p.Processes))
	for i := range p.Processes {
		p.Processes[i].Wall, p.Processes[i].Before = 0, i == first || len(p.Processes) > 2 && g.chance(0.3)
	}
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Kind == setWall })
}
