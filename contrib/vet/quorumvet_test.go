package quorumvet_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	quorumvet "github.com/quorumlock/quorumlock/contrib/vet"
)

// Each package of testdata has the mistakes of one check, with the expected findings, and similar
// code that is right.
func TestAnalyzer(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), quorumvet.Analyzer, "./...")
}
