# The explorer in a container. Give it a folder with rules and facts:
#   docker build -t rulewright .
#   docker run --rm -p 8765:8765 -v "$PWD/data:/data:ro" rulewright serve /data/family.rules /data/family.tsv --host 0.0.0.0
# Without arguments it serves a small generated family. The address that it prints has the token to open it with.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /app
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN pip install --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt '.[web,frames,rdf]'

RUN useradd --create-home --uid 1000 rulewright
USER rulewright
WORKDIR /home/rulewright
RUN python -c "import rulewright as rw; from rulewright.data.generators import family; example = family(100, seed=1); \
example.rules.save('family.rules'); rw.write_facts(example.kb, 'family.facts')"

EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8765), 3).close()"]
ENTRYPOINT ["rulewright"]
CMD ["serve", "family.rules", "family.facts", "--host", "0.0.0.0", "--port", "8765"]
