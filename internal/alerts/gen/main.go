// Command gen writes the files of package alerts. It is run by go generate in
// that package's folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/solobeat/solobeat/internal/alerts"
)

func main() {
	if err := write(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
}

func write(root string) error {
	files, err := alerts.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return fmt.Errorf("gen: %w", err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return fmt.Errorf("gen: %w", err)
		}
	}
	return nil
}
