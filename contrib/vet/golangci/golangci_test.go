package golangci

import (
	"testing"

	"github.com/golangci/plugin-module-register/register"
)

func TestThePluginHasTheAnalyzer(t *testing.T) {
	newPlugin, err := register.GetPlugin("quorumvet")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	analyzers, err := p.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 || analyzers[0].Name != "quorumvet" || p.GetLoadMode() != register.LoadModeTypesInfo {
		t.Errorf("analyzers %v, mode %s, %v", analyzers, p.GetLoadMode(), err)
	}
}
