// Command quorumvet runs the analyzer of package quorumvet: quorumvet ./..., or go vet
// -vettool=$(which quorumvet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	quorumvet "github.com/quorumlock/quorumlock/contrib/vet"
)

func main() { multichecker.Main(quorumvet.Analyzer) }
