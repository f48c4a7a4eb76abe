// Package golangci is package quorumvet as a module plugin of golangci-lint. In .custom-gcl.yml:
//
//	plugins:
//	  - module: github.com/quorumlock/quorumlock/contrib/vet
//	    import: github.com/quorumlock/quorumlock/contrib/vet/golangci
//	    version: v0.1.0
//
// and in .golangci.yml:
//
//	linters:
//	  enable: [quorumvet]
//	  settings:
//	    custom:
//	      quorumvet: {type: module}
//
// Then golangci-lint custom builds a golangci-lint with the plugin.
package golangci

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	quorumvet "github.com/quorumlock/quorumlock/contrib/vet"
)

func init() {
	register.Plugin("quorumvet", func(any) (register.LinterPlugin, error) { return plugin{}, nil })
}

type plugin struct{}

func (plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{quorumvet.Analyzer}, nil
}

func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
