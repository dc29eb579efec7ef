# The same steps as .ci/run, one by one.

GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: all build install test race lint fmt fuzz cross crash bench bench-page bench-peers ci clean

all: build test lint

build: ## the binary, in ./yieldlog
	go build -o yieldlog ./cmd/yieldlog

install: ## the binary, in $GOBIN
	go install ./cmd/yieldlog

test:
	go test -timeout 20m ./...

race:
	go test -race -p 1 -timeout 20m ./...

lint:
	go run $(GOLANGCI) run ./...

fmt:
	go run $(GOLANGCI) fmt ./...

fuzz: ## every fuzz target, a short while
	.ci/run fuzz

cross: ## what does not run here must at least compile
	GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/yieldlog
	GOOS=windows GOARCH=amd64 go build -o /dev/null ./cmd/yieldlog

crash: ## the crash suite, for as long as it takes (CI runs three rounds)
	go test ./crash -run TestCrash -rounds 500 -timeout 0 -v

bench: ## the budgets of docs/performance.md, on a machine at rest
	go run ./bench

bench-page: ## the page with 10,000 executions and a flood
	go test ./replay/web -run TestBrowserIsQuick -measure -v -count=1

bench-peers: ## the same, beside YieldShell (PyPI) and Desktop Commander (npm)
	pip install --quiet yieldshell-mcp
	npm install --no-save --silent @wonderwhy-er/desktop-commander
	go run ./bench -peers exec

ci:
	.ci/run

clean:
	rm -rf yieldlog dist
