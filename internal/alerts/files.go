package alerts

import "maps"

// Files returns what is generated, by path relative to the repository.
func Files() (map[string][]byte, error) {
	rules, err := Rules(Groups())
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"deploy/prometheus/alerts.yaml": rules}
	maps.Copy(files, map[string][]byte{})
	return files, nil
}
