package sabotage

import "testing"

func TestPlantedTriesAsManyBugsAsItIsAsked(t *testing.T) {
	p := &Planted{Soon: 10, Bugs: []Bug{{Name: "a", Seeds: 10}, {Name: "b", Seeds: 11}, {Name: "c", Seeds: 1}, {Name: "d", Seeds: 2}}}
	for howMany, want := range map[string]int{"1": 1, "all": 4, "1000": 3, "0": 0} {
		got, err := p.some(howMany)
		if err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for _, b := range got {
			names[b.Name] = true
			if howMany != "all" && b.Seeds > p.Soon {
				t.Errorf("-planted %s tries %q, which takes up to %d seeds", howMany, b.Name, b.Seeds)
			}
		}
		if len(names) != len(got) || len(got) != want {
			t.Errorf("-planted %s tries %d bugs, %d of them different; want %d", howMany, len(got), len(names), want)
		}
	}
	if _, err := p.some("few"); err == nil {
		t.Error("-planted few is accepted")
	}
}
