# refused: no_training
import sys

import torch
from torchvision import models, transforms
from PIL import Image

model = models.resnet50(weights="DEFAULT").eval()
image = transforms.ToTensor()(Image.open(sys.argv[1])).unsqueeze(0)
with torch.no_grad():
    print(model(image).argmax(1).item())
